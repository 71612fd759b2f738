"""The store `etcd://`: its address, the layout of its keys, its wire in both worlds, its backend."""
