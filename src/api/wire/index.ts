/** The wire format of the resize API, shared by server and CLI: messages and error details. */
export { PACKAGE, decodeRequest, decodeResponse, encodeRequest, encodeResponse } from './messages.ts';
export type {
  Requests,
  Responses,
  WireAmounts,
  WirePod,
  WirePodIdentity,
  WirePodRef,
  WirePodValues,
  WireResize,
  WireResources,
  WireSpan,
  WireState,
  WireStep,
  WireTime,
  WireValues,
} from './messages.ts';
export { decodeStatusDetails } from '../../grpc/index.ts';
export type { ErrorInfo } from '../../grpc/index.ts';
