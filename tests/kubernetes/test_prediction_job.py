"""The Job of `oarlock predict --on kubernetes`, as it is sent: nobody but its client reaches its pods."""

from __future__ import annotations

from oarlock.engines.kubernetes.api.names import HELPER, RUN
from oarlock.engines.kubernetes.deployments import server_objects
from oarlock.engines.kubernetes.deployments.server_parcel import ServerParcel
from oarlock.engines.kubernetes.predictions import prediction_job
from oarlock.job.model import Job, Role
from oarlock.serving.settings import Settings


def parcel() -> ServerParcel:
    settings = Settings("digits", "/oarlock/work/model", host="0.0.0.0")
    return prediction_job.own(
        ServerParcel(
            "digits-predict-abcd", Job(name="digits", program="train.py"), settings, "image", b"", Role()
        )
    )


def test_its_pods_listen_to_nobody_else() -> None:
    settings = Settings.from_json(server_objects.config_maps(parcel())[0]["data"]["settings.json"])
    assert (settings.host, settings.follows) == ("127.0.0.1", False)
    [container] = prediction_job.pod(parcel())["spec"]["containers"]
    assert not {"ports", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle"} & container.keys()


def test_a_pod_that_is_deleted_is_never_taken_for_done() -> None:
    """A Job counts exit code 0 as success, also after SIGTERM, and creates no other pod for that index."""
    settings = Settings.from_json(server_objects.config_maps(parcel())[0]["data"]["settings.json"])
    assert settings.stopped == 143


def test_it_is_one_object_for_any_number_of_pods_and_no_run() -> None:
    job = prediction_job.job(parcel(), 7)
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (7, 7, "Indexed")
    assert "backoffLimit" not in spec
    assert RUN not in job["metadata"]["labels"], "stop and delete would act on it"
    assert spec["template"]["metadata"]["labels"][HELPER] == prediction_job.PURPOSE
    assert spec["template"]["spec"]["restartPolicy"] == "OnFailure"
