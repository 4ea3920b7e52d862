"""stub"""
def count(records, options):
    raise NotImplementedError
