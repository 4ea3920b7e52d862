"""The data gate: what is wrong with training data is found before the meter runs.

`gate.check` reads and reports; `prepare.prepare` cleans, masks, splits and writes; both take
`options.Options` and local paths. Nothing here touches the network, a clock or a vendor.
"""
