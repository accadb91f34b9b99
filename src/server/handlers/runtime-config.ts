import { type Backend, CgroupDriverName, describeCgroupDriver, encode, isUnimplemented } from '../../runtime/index.ts';
import { forward } from './serving/index.ts';
import { type RawUnaryHandler, inBackend } from '../../grpc/index.ts';

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
