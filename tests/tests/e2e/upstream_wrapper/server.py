"""Upstream's service on gRPC's C-core: a server that has nothing of tonic. Its runner takes a second to end.

Prints its port, and then every call with the bytes of its request. Ends with its standard input.
"""

import sys
import time
from concurrent import futures

import grpc

SERVICE = "/gitlab_com.gitlab_runner.runner_wrapper.ProcessWrapper/"
RUNNING, IN_SHUTDOWN, STOPPED = 1, 2, 3
asked = None


def status():
    if asked is None:
        return RUNNING
    return IN_SHUTDOWN if time.monotonic() - asked < 1 else STOPPED


class Wrapper(grpc.GenericRpcHandler):
    def service(self, call):
        # Other services are unimplemented, as for a server that was never told of them.
        if not call.method.startswith(SERVICE):
            return None
        name = call.method.removeprefix(SERVICE)

        def answer(request, _context):
            global asked
            print(name, request.hex(), flush=True)
            if name.startswith("Init") and asked is None:
                asked = time.monotonic()
            return bytes([1 << 3, status()])

        return grpc.unary_unary_rpc_method_handler(answer)


server = grpc.server(futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((Wrapper(),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
