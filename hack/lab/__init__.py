"""What the programs of this folder share: tools, a private docker engine, and the cluster for demo and tests.

Python 3.11, standard library only, so that everything here runs before anything is installed.
"""
