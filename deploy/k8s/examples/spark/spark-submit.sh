#!/bin/sh
# The same job without the operator. KUBERNETES: the address of the API server, https://host:port.
set -eu
cd "$(dirname "$0")"
: "${KUBERNETES:?the address of the API server}" "${IMAGE:=registry.example/spark-samelog:0.2}"

volume=kubernetes.driver.volumes.hostPath.copies
worker=kubernetes.executor.volumes.hostPath.copies
exec spark-submit \
    --master "k8s://$KUBERNETES" \
    --deploy-mode cluster \
    --name ticks \
    --conf spark.kubernetes.namespace=samelog-copies \
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark \
    --conf spark.kubernetes.container.image="$IMAGE" \
    --conf spark.kubernetes.driver.podTemplateFile=pod.yaml \
    --conf spark.kubernetes.executor.podTemplateFile=pod.yaml \
    --conf spark.kubernetes.file.upload.path="${UPLOADS:?where the job is uploaded to, such as s3a://bucket/jobs}" \
    --conf spark.executor.instances=2 \
    --conf spark.$volume.mount.path=/var/lib/samelog-copies \
    --conf spark.$volume.mount.readOnly=true \
    --conf spark.$volume.options.path=/var/lib/samelog-copies \
    --conf spark.$worker.mount.path=/var/lib/samelog-copies \
    --conf spark.$worker.mount.readOnly=true \
    --conf spark.$worker.options.path=/var/lib/samelog-copies \
    --conf spark.kubernetes.driverEnv.SAMELOG_DIRECTORY=/var/lib/samelog-copies \
    --conf spark.executorEnv.SAMELOG_DIRECTORY=/var/lib/samelog-copies \
    job.py
