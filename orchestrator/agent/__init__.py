"""The program that runs on the instance: standard library only, Python 3.8 and newer.

The modules here are joined into one file by `bundle.py`. `plugin.py` (Axolotl's side) and
`environment.py` (the builder of Axolotl's environment) are shipped beside it.
"""
