#!/bin/sh
# A scripted nvidia-smi. /run/gpus holds one line a GPU, fields parted by "|":
# name|uuid|memory_total_mib|memory_used_mib|util_percent|power_w|temperature_c|driver|cuda
table=/run/gpus
if [ -s /run/gpu-fault ]; then cat /run/gpu-fault; exit 9; fi
if [ ! -s $table ]; then echo "No devices were found"; exit 6; fi
query= format=
for word in "$@"; do
  case $word in
    -L|--list-gpus)
      awk -F'|' '{printf "GPU %d: %s (UUID: %s)\n", NR - 1, $1, $2}' $table; exit 0 ;;
    --query-gpu=*) query=${word#*=} ;;
    --query-compute-apps=*) exit 0 ;;
    --format=*) format=${word#*=} ;;
  esac
done
if [ -z "$query" ]; then
  awk -F'|' 'NR == 1 {printf "NVIDIA-SMI %s   Driver Version: %s   CUDA Version: %s\n", $8, $8, $9}
    {printf "| %d  %s | %sMiB / %sMiB | %s%% |\n", NR - 1, $1, $4, $3, $5}' $table
  exit 0
fi
awk -F'|' -v query="$query" -v format="$format" '
  BEGIN {
    at["name"] = 1; at["gpu_name"] = 1; at["uuid"] = 2; at["gpu_uuid"] = 2
    at["memory.total"] = 3; at["memory.used"] = 4; at["utilization.gpu"] = 5
    at["power.draw"] = 6; at["temperature.gpu"] = 7; at["driver_version"] = 8
    unit["memory.total"] = " MiB"; unit["memory.used"] = " MiB"; unit["memory.free"] = " MiB"
    unit["utilization.gpu"] = " %"; unit["power.draw"] = " W"
    bare = index(format, "nounits") > 0
    count = split(query, wanted, ",")
    for (i = 1; i <= count; i++) gsub(/ /, "", wanted[i])
    if (!index(format, "noheader")) print query
  }
  {
    line = ""
    for (i = 1; i <= count; i++) {
      key = wanted[i]
      if (key == "index") value = NR - 1
      else if (key == "count") value = NR
      else if (key == "memory.free") value = $3 - $4
      else if (key == "compute_cap") value = "8.0"
      else if (key in at) value = $(at[key])
      else value = "[N/A]"
      line = line (i > 1 ? ", " : "") value (bare ? "" : unit[key])
    }
    print line
  }' $table
