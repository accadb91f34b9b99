import { Client, credentials, Metadata } from '@grpc/grpc-js';
import { bytes, map, message } from '../protobuf.ts';
import { containers, pods, type StoredContainer, type StoredPod, storedResources } from './stored-node.ts';

/** Pods and containers in containerd's database, as its CRI service writes them and reads them at its next start. */

const NAMESPACE = 'k8s.io';
const KIND = 'io.cri-containerd.kind';
const CREATE = '/containerd.services.containers.v1.Containers/Create';
export const IMAGE_ID = `sha256:${'5f'.repeat(32)}`;
const AT_ONCE = 16;

const identity = (content: Buffer): Buffer => content;

/** Writes all records. containerd reads them only at a restart. */
export async function writeRecords(socket: string, logFolder: string): Promise<void> {
  const client = new Client(`unix:${socket}`, credentials.createInsecure());
  const metadata = new Metadata();
  metadata.set('containerd-namespace', NAMESPACE);
  const create = (record: Buffer): Promise<void> =>
    new Promise((resolve, reject) => {
      client.makeUnaryRequest(CREATE, identity, identity, message(1, record), metadata, (error) => {
        if (error === null) resolve();
        else reject(error);
      });
    });
  const records = [...pods.map(podRecord), ...containers.map((container) => containerRecord(container, logFolder))];
  const queue = records.values();
  const worker = async (): Promise<void> => {
    for (const record of queue) await create(record);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  client.close();
}

function podRecord(pod: StoredPod): Buffer {
  const { id, name, namespace, uid, cgroupParent } = pod;
  const Config = { metadata: { name, uid, namespace }, linux: { cgroup_parent: cgroupParent } };
  return record(id, 'sandbox', { ID: id, Name: `${name}_${namespace}_${uid}_0`, Config, RuntimeHandler: '' });
}

function containerRecord(container: StoredContainer, logFolder: string): Buffer {
  const { id, name, pod } = container;
  const volume = (kind: string): string => `/var/lib/kubelet/pods/${pod.uid}/volumes/kubernetes.io~${kind}`;
  const Config = {
    metadata: { name },
    image: { image: IMAGE_ID, user_specified_image: imageOf(container) },
    labels: labelsOf(container),
    annotations: annotationsOf(),
    mounts: [
      {
        container_path: '/var/run/secrets/kubernetes.io/serviceaccount',
        host_path: volume('projected/kube-api-access'),
      },
      { container_path: '/cache', host_path: volume('empty-dir/cache') },
      { container_path: '/etc/hosts', host_path: `/var/lib/kubelet/pods/${pod.uid}/etc-hosts` },
      {
        container_path: '/dev/termination-log',
        host_path: `/var/lib/kubelet/pods/${pod.uid}/containers/${name}/0a1b2c3d`,
      },
    ],
    linux: { resources: storedResources },
  };
  const LogPath = `${logFolder}/${pod.namespace}_${pod.name}_${pod.uid}_${name}.log`;
  const Name = `${name}_${pod.name}_${pod.namespace}_${pod.uid}_0`;
  return record(id, 'container', { ID: id, Name, SandboxID: pod.id, Config, ImageRef: IMAGE_ID, LogPath });
}

export const imageOf = ({ name }: StoredContainer): string => `images.example/team/checkout/${name}:v1.27.3`;

/** Labels as kubelet sets them. */
export const labelsOf = ({ name, pod }: StoredContainer): Record<string, string> => ({
  'io.kubernetes.container.name': name,
  'io.kubernetes.pod.name': pod.name,
  'io.kubernetes.pod.namespace': pod.namespace,
  'io.kubernetes.pod.uid': pod.uid,
});

export const annotationsOf = (): Record<string, string> => ({
  'io.kubernetes.container.hash': '8e5a1c0d',
  'io.kubernetes.container.restartCount': '0',
  'io.kubernetes.container.terminationMessagePath': '/dev/termination-log',
  'io.kubernetes.container.terminationMessagePolicy': 'File',
  'io.kubernetes.pod.terminationGracePeriod': '30',
});

/** A containerd.services.containers.v1.Container with CRI's own part. */
function record(id: string, kind: 'sandbox' | 'container', Metadata: object): Buffer {
  const type = `github.com/containerd/cri/pkg/store/${kind}/Metadata`;
  return Buffer.concat([
    bytes(1, id),
    map(2, { [KIND]: kind }),
    message(4, bytes(1, 'io.containerd.runc.v2')),
    bytes(5, any('types.containerd.io/opencontainers/runtime-spec/1/Spec', {})),
    message(10, bytes(1, `io.cri-containerd.${kind}.metadata`), bytes(2, any(type, { Version: 'v1', Metadata }))),
  ]);
}

/** A google.protobuf.Any of a Go value, which containerd writes as JSON. */
const any = (type: string, value: object): Buffer => Buffer.concat([bytes(1, type), bytes(2, JSON.stringify(value))]);
