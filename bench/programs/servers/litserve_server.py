"""LitServe with its batching on, as its documentation has it."""

import sys

import litserve as ls


class Digits(ls.LitAPI):
    def setup(self, device):
        from one_model import predict

        self.call = predict

    def decode_request(self, request):
        return request["instances"][0]

    def batch(self, inputs):
        return list(inputs)

    def predict(self, rows):
        return self.call(rows)

    def unbatch(self, output):
        return output

    def encode_response(self, output):
        return {"predictions": [output]}


if __name__ == "__main__":
    api = Digits(max_batch_size=64, batch_timeout=0.005, api_path="/v1/models/digits:predict")
    server = ls.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(port=int(sys.argv[1]), num_api_servers=1, generate_client_file=False, log_level="warning")
