/** Calls about the runtime as a whole: Status, RuntimeConfig, and the shim's own status. */
import type { ReadinessReport } from '../../core/index.ts';
import {
  type Backend,
  CgroupDriverName,
  describeCgroupDriver,
  encode,
  isUnimplemented,
  SHIM_STATUS_PATH,
  withInfo,
} from '../../runtime/index.ts';
import type { FailOpen } from '../../sandbox/index.ts';
import type { LocalHandlers } from '../local-calls.ts';
import { inBackend, type RawUnaryHandler } from '../unary/call.ts';
import { decodeOrUndefined, forward } from './forward.ts';
import { type Amendment, type Interceptors, noInterceptors } from './interceptors.ts';
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
export function runtimeStatus(failOpen: FailOpen, { version, readiness, connections }: Program): Amendment {
  return ({ request, response }) => {
    const asked = decodeOrUndefined(failOpen, 'StatusRequest', request);
    if (asked?.verbose !== true) return undefined;
    return readiness().then((report) =>
      withInfo(response, INFO_KEY, JSON.stringify({ version, connections: connections(), ...report })),
    );
  };
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
export function shimStatus({ version, readiness, connections }: Program): RawUnaryHandler {
  return async () => {
    const report = await readiness();
    return withInfo(Buffer.alloc(0), INFO_KEY, JSON.stringify({ version, connections: connections(), ...report }));
  };
}

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
