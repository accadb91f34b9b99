/** The wire format of the resize API, shared by server and CLI: messages and error details. */
export { PACKAGE, decodeRequest, decodeResponse, encodeRequest, encodeResponse } from './messages.ts';
export type {
  Requests,
  Responses,
  WireAmounts,
  WireChange,
  WirePod,
  WirePodIdentity,
  WirePodRef,
  WirePodValues,
  WireRequester,
  WireResize,
  WireResources,
  WireSpan,
  WireState,
  WireStep,
  WireSummary,
  WireTime,
  WireValues,
} from './messages.ts';
export { decodeStatusDetails } from '../../grpc/index.ts';
export type { ErrorInfo } from '../../grpc/index.ts';
