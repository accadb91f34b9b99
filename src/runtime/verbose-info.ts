import protobuf from 'protobufjs/minimal.js';

/** Field number of `info` (a map of texts) in the responses of verbose status calls: PodSandboxStatus, ContainerStatus, Status. */
const INFO = 2;
const DELIMITED = 2;

/** The same response with one more entry in its `info`. Every other byte stays as it was: entries of a map are only appended. */
export function withInfo(response: Uint8Array, key: string, value: string): Buffer {
  const entry = protobuf.Writer.create()
    .uint32(INFO * 8 + DELIMITED)
    .fork()
    .uint32(1 * 8 + DELIMITED)
    .string(key)
    .uint32(2 * 8 + DELIMITED)
    .string(value)
    .ldelim()
    .finish();
  return Buffer.concat([response, entry]);
}
