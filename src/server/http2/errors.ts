/** HTTP/2 error codes (RFC 9113 section 7). Numbers as on the wire. */
export const ErrorCode = {
  NO_ERROR: 0,
  PROTOCOL_ERROR: 1,
  INTERNAL_ERROR: 2,
  FLOW_CONTROL_ERROR: 3,
  STREAM_CLOSED: 5,
  FRAME_SIZE_ERROR: 6,
  REFUSED_STREAM: 7,
  CANCEL: 8,
  COMPRESSION_ERROR: 9,
  ENHANCE_YOUR_CALM: 11,
} as const;
export type ErrorCode = (typeof ErrorCode)[keyof typeof ErrorCode];

/**
 * A peer broke the protocol in a way that ends its connection (RFC 9113 section 5.4.1). Thrown while a frame is read,
 * caught in one place, never leaves the switch.
 */
export class ConnectionError extends Error {
  override readonly name = 'ConnectionError';
  constructor(
    readonly code: ErrorCode,
    message: string,
  ) {
    super(message);
  }
}
