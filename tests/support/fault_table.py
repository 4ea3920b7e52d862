"""The scenarios of `make faults`: every way in which RunPod was seen to fail, or may."""

from __future__ import annotations

from tests.support.faulty import NO_OFFER, OK, UNFINISHED, Fault, arm

SKY_500 = "finds it by name, ends it, makes another: 0 left"
SKY_LATE = "2 pods left, waits without end"
STACK_500 = "1 pod left, shown nowhere"
SKY_END = "says done, exit 0, 1 pod left"
STACK_END = "gives up after 876 s, 1 pod left"
SKY_BOOT = "polls without end; client killed: 1 pod left"
STACK_BOOT = "ended after 20 min (source)"
NEW_MACHINE = (OK, UNFINISHED)  # whether another machine is hired is the job's own setting

CREATE = (
    Fault("create_500_done", arm("create_500_done"), skypilot=SKY_500, dstack=STACK_500),
    Fault("create_reset_done", arm("create_reset_done")),
    Fault("create_malformed_done", arm("create_malformed_done")),
    Fault("create_html", arm("create_html"), ends=(OK, NO_OFFER, UNFINISHED)),
    Fault("create_429", arm("create_429")),
    Fault("create_no_capacity", arm("create_no_capacity", times=2)),
    Fault("create_402", arm("create_402"), ends=(NO_OFFER,)),
    Fault("create_401", arm("create_401"), ends=(NO_OFFER,)),
    Fault("create_dear", arm("create_dear", factor=3), ends=(OK, NO_OFFER, UNFINISHED)),
    Fault("create_twice", arm("create_twice")),
    Fault("create_late", arm("create_late", seconds=1)),
    Fault(
        "create_500_list_late",
        arm("create_500_done"),
        settings={"list_lag_s": 5},
        env={"GPUJOB_SETTLE_READS": "30"},
        skypilot=SKY_LATE,
    ),
    Fault("create_hang", arm("create_hang")),
    Fault("create_hang_done", arm("create_hang_done")),
    Fault("create_drip_done", arm("create_drip_done")),
    Fault("create_null_done", arm("create_null_done")),
    Fault("create_422", arm("create_422"), ends=(NO_OFFER,)),
    Fault("create_no_disk", arm("create_no_disk", times=2)),
    Fault("get_late", settings={"get_lag_s": 2}),
)
BOOT = (
    Fault("boot_stuck", arm("boot_stuck"), ends=NEW_MACHINE, skypilot=SKY_BOOT, dstack=STACK_BOOT),
    Fault("boot_no_direct", arm("boot_no_direct"), ends=NEW_MACHINE, skypilot=SKY_BOOT),
    Fault("boot_ssh_denied", arm("boot_ssh_denied"), ends=NEW_MACHINE),
    Fault("boot_zero_gpus", arm("boot_zero_gpus"), ends=NEW_MACHINE),
    Fault("boot_error", arm("boot_error"), ends=NEW_MACHINE),
    Fault("boot_ssh_refused", arm("boot_ssh_refused", seconds=3)),
    Fault("boot_no_runtime", arm("boot_no_runtime"), ends=NEW_MACHINE),
    Fault("boot_uptime_zero", arm("boot_uptime_zero"), ends=NEW_MACHINE),
    Fault("boot_pull_error", arm("boot_pull_error"), ends=NEW_MACHINE),
    Fault("boot_slow", arm("boot_slow", seconds=3)),
    Fault("boot_other_gpu", arm("boot_other_gpu"), ends=NEW_MACHINE),
    Fault("boot_old_driver", arm("boot_old_driver"), ends=NEW_MACHINE),
    Fault("boot_small_disk", arm("boot_small_disk", mb=1), ends=NEW_MACHINE),
)
RUN = (
    Fault("run_vanish", harm={"name": "run_vanish"}, ends=NEW_MACHINE),
    Fault("run_exited", harm={"name": "run_exited"}, ends=NEW_MACHINE),
    Fault("run_broke", harm={"name": "run_broke"}, ends=NEW_MACHINE),
    Fault("run_ssh_drop", harm={"name": "run_ssh_drop"}),
    Fault("run_ssh_gone", harm={"name": "run_ssh_gone", "seconds": 2}),
    Fault("run_container_restart", harm={"name": "run_container_restart"}, ends=NEW_MACHINE),
    Fault("run_spot_kill", harm={"name": "run_spot_kill", "notice_s": 1}, ends=NEW_MACHINE),
    Fault("run_disk_full", harm={"name": "run_disk_full"}, ends=NEW_MACHINE),
    Fault("run_gpu_lost", harm={"name": "run_gpu_lost"}, ends=NEW_MACHINE),
    Fault("run_no_api", harm={"name": "run_no_api"}),
    Fault("run_port_change", harm={"name": "run_port_change"}, ends=NEW_MACHINE),
    Fault("run_ssh_freeze", harm={"name": "run_ssh_freeze", "seconds": 4}),
    Fault("api_down", harm={"name": "api_down", "seconds": 3}),
)
END = (
    Fault("delete_500_done", arm("delete_500_done")),
    Fault("delete_500", arm("delete_500", times=3), dstack=STACK_END),
    Fault("delete_quiet", arm("delete_quiet"), skypilot=SKY_END),
    Fault("delete_lie", arm("delete_lie", times=2)),
    Fault("delete_404", arm("delete_404")),
    Fault("delete_429", arm("delete_429")),
    Fault("delete_reset", arm("delete_reset")),
    Fault("delete_401", arm("delete_401", times=2)),
    Fault("delete_html", arm("delete_html", times=2)),
    Fault("delete_null", arm("delete_null")),
    Fault("delete_hang", arm("delete_hang")),
    Fault("delete_hang_done", arm("delete_hang_done")),
    Fault("delete_drip", arm("delete_drip")),
    Fault("list_omits", arm("list_omits", times=2)),
    Fault("list_empty", arm("list_empty", times=2)),
    Fault("list_html", arm("list_html", times=2)),
    Fault("list_malformed", arm("list_malformed", times=2)),
    Fault("list_pages", arm("list_pages", times=0)),
    Fault("list_late", settings={"list_lag_s": 3}),
    Fault("get_500", arm("get_500", times=3)),
    Fault("get_drip", arm("get_drip")),
)
ALL = (*CREATE, *BOOT, *RUN, *END)
# In the gate: those in which both rivals leak. (A pod that vanishes is believed after 120 s only.)
GATE = ("create_500_done", "delete_quiet")
