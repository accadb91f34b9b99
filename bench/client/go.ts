import { text } from 'node:stream/consumers';
import type { SideResults } from '../calls/load.ts';
import type { Side } from '../calls/sides.ts';
import type { Children } from '../children.ts';
import type { GoPrograms } from '../go/programs.ts';
import { rounded } from '../statistics.ts';
import type { Call } from './client.ts';

/** The plan of the Go program. The type `plan` in bench/go/load.go describes its fields. */
export interface GoLoad {
  readonly call: Call;
  readonly inFlight: number;
  /** The time of all sides together, without the warm-up. */
  readonly seconds: number;
  /** Opens a new connection for each call. */
  readonly connects?: boolean;
  /** Time between the starts of two consecutive calls, with one call in flight. */
  readonly intervalMs?: number;
}

/** Runs the load in a separate process, with kubelet's client library. Rejects if a call fails. */
export async function loadByGo(
  children: Children,
  { load }: GoPrograms,
  sides: readonly Pick<Side, 'name' | 'socket' | 'child'>[],
  { call, inFlight, seconds, connects = false, intervalMs = 0 }: GoLoad,
): Promise<SideResults> {
  const plan = {
    Sides: sides.map(({ name, socket, child }) => ({ Name: name, Socket: socket, Pid: child?.pid ?? 0 })),
    Path: call.path,
    Request: Buffer.from(call.request).toString('base64'),
    InFlight: inFlight,
    Seconds: seconds,
    Connect: connects,
    IntervalMs: intervalMs,
  };
  const child = children.spawn('go-load', load, []);
  const { stdin, stdout } = child.process;
  if (stdin === null || stdout === null) throw new Error('the Go client has no pipes');
  stdin.end(JSON.stringify(plan));
  const printed = await text(stdout);
  await child.exited;
  if (printed === '') throw new Error(`the Go client has failed:\n${child.lastOutput()}`);
  const found = JSON.parse(printed) as Required<SideResults>;
  return Object.fromEntries(
    Object.entries(found).map(([name, { p50us, p99us, rps, cpuUs }]) => [
      name,
      {
        p50us: rounded(p50us, 1),
        p99us: rounded(p99us, 1),
        rps: Math.round(rps),
        cpuUs: cpuUs === null ? null : rounded(cpuUs, 1),
      },
    ]),
  );
}
