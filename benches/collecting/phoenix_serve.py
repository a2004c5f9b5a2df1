"""Starts Phoenix with its gRPC port on loopback: it has a setting for the host of its HTTP port only. Runs in Phoenix's environment."""
import runpy
import sys

from grpc.aio import _server

add_insecure_port = _server.Server.add_insecure_port
_server.Server.add_insecure_port = lambda self, address: add_insecure_port(self, address.replace("[::]", "127.0.0.1"))
sys.argv = ["phoenix", "serve"]
runpy.run_module("phoenix.server.main", run_name="__main__")
