"""Where the API server keeps each kind that Oarlock ever creates or reads. Pure."""

from __future__ import annotations

PATHS = {
    "Job": ("apis/batch/v1", "jobs"),
    "Pod": ("api/v1", "pods"),
    "Service": ("api/v1", "services"),
    "ConfigMap": ("api/v1", "configmaps"),
    "Secret": ("api/v1", "secrets"),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "HorizontalPodAutoscaler": ("apis/autoscaling/v2", "horizontalpodautoscalers"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "Ingress": ("apis/networking.k8s.io/v1", "ingresses"),
    "HTTPRoute": ("apis/gateway.networking.k8s.io/v1", "httproutes"),
    "Event": ("api/v1", "events"),
    "ResourceQuota": ("api/v1", "resourcequotas"),
    "LimitRange": ("api/v1", "limitranges"),
}
