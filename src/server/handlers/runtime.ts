/** Calls about the runtime as a whole: Status, RuntimeConfig, and the shim's own status. */
import type { ReadinessReport } from '../../core/index.ts';
import {
  type Backend,
  CgroupDriverName,
  describeCgroupDriver,
  encode,
  infoEntry,
  isUnimplemented,
  SHIM_STATUS_PATH,
} from '../../runtime/index.ts';
import type { FailOpen } from '../../sandbox/index.ts';
import type { LocalHandlers } from '../local-calls.ts';
import { inBackend, type RawUnaryHandler } from '../unary/call.ts';
import { decodeOrUndefined, forward } from './forward.ts';
import { type AmendedCall, type Amendment, type Interceptors, noInterceptors } from './interceptors.ts';
import { INFO_KEY } from './pod-sandbox-status.ts';

export interface Program {
  readonly version: string;
  /** Must not reject. */
  readonly readiness: () => Promise<ReadinessReport>;
  /** The number of clients connected to the CRI socket, including the caller. */
  readonly connections: () => number;
}

/**
 * Amends verbose Status (`crictl info`): adds the shim's version, its number of clients, and whether it can resize, as
 * JSON. The conditions that kubelet evaluates stay the runtime's: a node that cannot resize for the moment is still
 * Ready.
 */
export function runtimeStatus(failOpen: FailOpen, program: Program): Pick<AmendedCall, 'amendment' | 'prepare'> {
  const prepare = (request: Uint8Array): Amendment => {
    const asked = decodeOrUndefined(failOpen, 'StatusRequest', request);
    if (asked?.verbose !== true) return () => undefined;
    let known: Uint8Array | undefined;
    const entry = programEntry(program).then((made) => (known = made));
    // The backend may fail the call: then nobody waits for the entry.
    entry.catch(() => undefined);
    return ({ response }) => {
      if (known !== undefined) return Buffer.concat([response, known]);
      const copy = Buffer.from(response);
      return entry.then((made) => Buffer.concat([copy, made]));
    };
  };
  return { amendment: (exchange, trace) => prepare(exchange.request)(exchange, trace), prepare };
}

async function programEntry({ version, readiness, connections }: Program): Promise<Uint8Array> {
  const report = await readiness();
  return infoEntry(INFO_KEY, JSON.stringify({ version, connections: connections(), ...report }));
}

/**
 * Returns the interceptors and handlers of a shim that forwards every call. It only answers the shim's own status call,
 * which no runtime implements, so that the installer and doctor recognize the shim.
 */
export function passThroughHandlers(program: Program): {
  readonly interceptors: Interceptors;
  readonly handlers: LocalHandlers;
} {
  const handlers = new Map<string, RawUnaryHandler>([[SHIM_STATUS_PATH, shimStatus(program)]]);
  return { interceptors: { ...noInterceptors, handlers }, handlers };
}

/** Answers {@link SHIM_STATUS_PATH} with the version, the number of clients and the readiness. */
export const shimStatus =
  (program: Program): RawUnaryHandler =>
  async () =>
    Buffer.from(await programEntry(program));

/**
 * Handles RuntimeConfig. Returns the backend's response if it implements the call. Otherwise (containerd before 2.0)
 * returns the cgroup driver from the backend's configuration. If that shows none, UNIMPLEMENTED is returned and kubelet
 * uses its own setting.
 */
export function runtimeConfig(backend: Backend): RawUnaryHandler {
  return async (call, trace) => {
    try {
      return await forward(backend, call, trace);
    } catch (error) {
      if (!isUnimplemented(error)) throw error;
      const { deadline } = call;
      const status = await inBackend(trace, () => backend.runtime('Status', { verbose: true }, { deadline }));
      const driver = describeCgroupDriver(status);
      if (driver === undefined) throw error;
      return encode('RuntimeConfigResponse', { linux: { cgroup_driver: CgroupDriverName[driver] } });
    }
  };
}
