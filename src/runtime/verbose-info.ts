import { createWriter, writeMapEntry } from '../core/protobuf/index.ts';

/**
 * The call that the shim answers without the runtime, also if it forwards every call of the CRI, Status too. Its
 * response is a StatusResponse with nothing but the shim's entry in `info`.
 */
export const SHIM_STATUS_PATH = '/cri-resize-shim.v1.Shim/Status';

/** Field number of `info` (map<string, string>) in the responses of verbose status calls: PodSandboxStatus, ContainerStatus, Status. */
const INFO = 2;

/** Returns the response with one more entry in its `info`. Appends the entry, so that all other bytes stay as they are. */
export function withInfo(response: Uint8Array, key: string, value: string): Buffer {
  return Buffer.concat([response, writeMapEntry(createWriter(), INFO, key, value).finish()]);
}
