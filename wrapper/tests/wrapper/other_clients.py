"""A client of upstream's service on gRPC's C-core, which Python, Ruby, PHP and C++ share: nothing of ours, and nothing of tonic.

other_clients.py TARGET AUTHORITY CALL...

Makes each call, prints its answer as JSON, one a line. AUTHORITY is what the requests are addressed to; empty for what gRPC makes of the
target. A call is CheckStatus, InitForcefulShutdown, or InitGracefulShutdown=URL.
"""

import json
import sys

import grpc

SERVICE = "/gitlab_com.gitlab_runner.runner_wrapper.ProcessWrapper/"


def field(number, content):
    return bytes([number << 3 | 2, len(content)]) + content


def request(call):
    name, _, url = call.partition("=")
    if name != "InitGracefulShutdown":
        return name, b""
    header = field(1, b"X-Token") + field(2, b"s3cret")
    callback = field(1, url.encode()) + field(2, b"POST") + field(3, header)
    return name, field(1, callback)


def answer(content):
    """status is 1, a number below 128; failureReason is 2, a text shorter than that."""
    fields = {1: 0, 2: ""}
    at = 0
    while at < len(content):
        number, value = content[at] >> 3, content[at + 1]
        at += 2
        if number == 2:
            fields[2] = content[at : at + value].decode()
            at += value
        else:
            fields[number] = value
    return {"status": fields[1], "failureReason": fields[2]}


target, authority, *calls = sys.argv[1:]
options = [("grpc.default_authority", authority)] if authority else []
with grpc.insecure_channel(target, options=options) as channel:
    for call in calls:
        name, content = request(call)
        print(json.dumps(answer(channel.unary_unary(SERVICE + name)(content, timeout=30))), flush=True)
