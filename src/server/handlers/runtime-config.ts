import { type Backend, CgroupDriverName, describeCgroupDriver, encode, isUnimplemented } from '../../runtime/index.ts';
import { forward } from './forward.ts';
import { type RawUnaryHandler, inBackend } from '../../grpc/index.ts';

/**
 * RuntimeConfig: the backend's own answer where it has one; else (containerd before 2.0) the cgroup driver that its
 * configuration shows. Where that does not show either, its Unimplemented stands, and kubelet goes by its own setting.
 */
export function runtimeConfig(backend: Backend): RawUnaryHandler {
  return async (call, trace) => {
    try {
      return await forward(backend, call, trace);
    } catch (error) {
      if (!isUnimplemented(error)) throw error;
      const deadline = call.getDeadline();
      const status = await inBackend(trace, () => backend.runtime('Status', { verbose: true }, { deadline }));
      const driver = describeCgroupDriver(status);
      if (driver === undefined) throw error;
      return encode('RuntimeConfigResponse', { linux: { cgroup_driver: CgroupDriverName[driver] } });
    }
  };
}
