import type { SideResult } from '../../bench/calls/load.ts';
import type { Measurement } from '../../bench/calls/measure.ts';
import type { RecordedCall, Recording } from '../../bench/load/recording.ts';
import { bytes } from '../../bench/protobuf.ts';
import type { Results } from '../../bench/run.ts';
import type { WorkResult } from '../../bench/work/index.ts';

/** Results of a bench that were made by hand. */

export const side = (p50us: number, rps: number): SideResult => ({ p50us, p99us: 2 * p50us, rps, cpuUs: 31.25 });

export const direct = side(100, 10_000);
export const relay = side(120, 8000);

/** A call with direct, relay and shim. */
export const measurement = (
  op: string,
  inFlight: number,
  shim: SideResult,
  client: Measurement['client'] = 'grpc-go',
): Measurement => ({ op, client, inFlight, sides: { direct, relay, shim } });

export const results = (given: Partial<Results>): Results => ({
  measurements: [],
  workResults: [],
  versions: { Node: '26.10.0' },
  ...given,
});

export const work = (name: string, p50: number, unit: WorkResult['unit'] = 'ms', on?: string): WorkResult => ({
  work: name,
  unit,
  p50,
  samples: 7,
  ...(on === undefined ? {} : { on }),
});

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
