import type { RecordedCall, Recording } from '../../../bench/load/recording.ts';
import { bytes } from '../../../bench/protobuf.ts';

/** A small recording, made by hand. */

const RUNTIME = '/runtime.v1.RuntimeService';

const call = (
  atMs: number,
  path: string,
  request: Buffer,
  response: Buffer | undefined,
  more: Partial<RecordedCall> = {},
): RecordedCall => ({
  connection: 0,
  atMs,
  path,
  request,
  responses: response === undefined ? [] : [response],
  status: 0,
  message: '',
  durationMs: 1.5,
  ...more,
});

const containers = Buffer.concat([bytes(1, bytes(1, 'a')), bytes(1, bytes(1, 'b'))]);
export const exec = bytes(1, 'a');

export const recording: Recording = {
  about: {
    date: '2026-01-02',
    kubelet: '1.36.3',
    containerd: '2.1.9',
    runtime: 'runc 1.1.5',
    kernel: 'User Mode Linux 7.2, 1 processor',
    pods: 1,
    containers: 2,
    probes: 1,
    probeSeconds: 10,
    statsSeconds: 15,
    seconds: 2,
    containerdCpuMs: 120,
    yardstickMs: 10,
  },
  calls: [
    call(0, `${RUNTIME}/ListContainers`, Buffer.alloc(0), containers),
    call(0.3, '/runtime.v1.ImageService/ImageFsInfo', Buffer.alloc(0), bytes(1, 'x'.repeat(200_000)), {
      connection: 1,
    }),
    call(20, `${RUNTIME}/ExecSync`, exec, bytes(1, 'first')),
    call(20, `${RUNTIME}/ContainerStatus`, bytes(1, 'gone'), undefined, { status: 5, message: 'not found' }),
    call(40, `${RUNTIME}/ExecSync`, exec, bytes(1, 'second')),
    call(60, `${RUNTIME}/ListContainers`, Buffer.alloc(0), containers),
  ],
  answers: [{ path: `${RUNTIME}/Version`, request: Buffer.alloc(0), response: bytes(2, 'containerd') }],
  cgroups: [{ cgroup: '/kubepods/pod1', name: 'memory.max', content: Buffer.from('max\n') }],
};
