"""The security of the service: who calls, what that caller may do, and how much of it.

bearer          the text of a bearer token: how it is made, and how it is recognised
badge           what is kept of a bearer token: its digest, role, names, namespace and end
token_file      the file of badges, which `holdfast token` writes
private_files   files that only their owner may write, and how they are replaced
roster          the badges of a running service, as the file has them now
"""
