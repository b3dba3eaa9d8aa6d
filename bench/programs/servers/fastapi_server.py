"""FastAPI as its tutorial has it: an async handler that calls the model for each request."""

import sys

import uvicorn
from fastapi import FastAPI
from one_model import predict
from pydantic import BaseModel

app = FastAPI()


class Body(BaseModel):
    instances: list


@app.post("/v1/models/digits:predict")
async def answer(body: Body):
    return {"predictions": predict(body.instances)}


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
