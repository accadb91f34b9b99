/** What all folders use: quantities with units, errors with stable reasons, locks and clocks, gRPC's codes, and small tools. */
export { type Clock, TimeLimit, steadyDeadline, steadyNow, systemClock, wallTime } from './clock.ts';
export { crashPoint } from './crash-points.ts';
export { nameOfErrno } from './errno.ts';
export {
  type ErrorContext,
  Exit,
  Reason,
  ShimError,
  errnoOf,
  grpcErrorText,
  invalidValue,
  isRollbackFailure,
  loggableError,
  messageOf,
  nearest,
  suggestion,
} from './errors.ts';
export { syncFile, syncFolder } from './fsync.ts';
export {
  type ClientProcess,
  Code,
  MESSAGE_PREFIX_SIZE,
  Metadata,
  type ServiceError,
  grpcCodeName,
  isServiceError,
  messagePrefix,
  writeMessagePrefix,
} from './grpc.ts';
export { type ConnectionLimits, limitConnections, oneRequestEach } from './http-connections.ts';
export { KeyedLock } from './lock.ts';
export { bufferUsed, releaseMemory } from './memory-release.ts';
export {
  type FieldReader,
  contentsOf,
  createWriter,
  delimitedKey,
  encodeMessage,
  readFields,
  readSubMessage,
  textOf,
  varintKey,
  writeMapEntry,
  writeString,
} from './protobuf.ts';
export { parseMilli, parseQuantity } from './quantities/kubernetes.ts';
export {
  type Bytes,
  type CpuMax,
  type CpuShares,
  type CpuWeight,
  type Limit,
  type Microseconds,
  bytes,
  cpuShares,
  cpuWeight,
  microseconds,
  reportedShares,
} from './quantities/numbers.ts';
export { PAGE_SIZE } from './quantities/page-size.ts';
export { fullestOf, podPressure, pressureOf, shareOf } from './quantities/pressure.ts';
export { KiB, MiB, exactSize, roundedDuration, roundedSize, roundedSizeWithUnit } from './quantities/sizes.ts';
export { Lazy, SharedCall, untilAborted } from './shared-call.ts';
export { readShipped } from './shipped-files.ts';
export { PacedStarts, Slots } from './slots.ts';
export { SOCK_STREAM, SO_ACCEPTCON, SS_CONNECTED, SS_CONNECTING, unixSockets } from './unix-sockets.ts';
