/**
 * The parts that all folders use: quantities with units, errors with stable reasons, locks and clocks, gRPC's codes,
 * log and counters, the configuration, systemd.
 */
export { type Clock, patientClock, steadyDeadline, steadyNow, systemClock, wallTime } from './clock.ts';
export { configurationExample } from './config/documentation.ts';
export { parseDuration } from './config/duration.ts';
export { ConfigError } from './config/errors.ts';
export { settingsIn } from './config/file.ts';
export {
  configFileIn,
  type EffectiveSetting,
  effectiveSettings,
  loadConfig,
  passThroughConfig,
} from './config/load.ts';
export { type Config, type ConfigKey, defaultOf, flagOf } from './config/schema.ts';
export { version } from './config/version.ts';
export { crashPoint } from './crash-points.ts';
export { nameOfErrno } from './errno.ts';
export {
  type ErrorContext,
  Exit,
  errnoOf,
  grpcErrorText,
  invalidValue,
  isRollbackFailure,
  loggableError,
  messageOf,
  Reason,
  ShimError,
  suggestion,
} from './errors.ts';
export { syncFile, syncFolder } from './fsync.ts';
export {
  type ClientProcess,
  Code,
  grpcCodeName,
  isServiceError,
  MESSAGE_PREFIX_SIZE,
  Metadata,
  messagePrefix,
  type ServiceError,
  writeMessagePrefix,
} from './grpc.ts';
export { type ConnectionLimits, limitConnections, oneRequestEach } from './http-connections.ts';
export { KeyedLock } from './lock.ts';
export { bufferUsed, releaseMemory } from './memory-release.ts';
export { countersFields, createCounters, noCounters } from './observe/counters.ts';
export { FailureLog, oncePerKey } from './observe/failure-log.ts';
export { families } from './observe/families.ts';
export { bounds, type Description, type Family, Histogram, Reading, type Series } from './observe/family.ts';
export {
  type Budget,
  type BypassTimes,
  type Counters,
  type EndpointState,
  endpointStates,
  type FailOpenReason,
  type IgnoredPodReason,
  type Log,
  type NodeReadings,
  noLog,
  type ReadinessCheck,
  type ReadinessReport,
  type ReclaimOutcome,
  type ResizeDirection,
} from './observe/interfaces.ts';
export { errorLines } from './observe/journal-priority.ts';
export { createLog } from './observe/log.ts';
export {
  contentsOf,
  createWriter,
  delimitedKey,
  encodeMessage,
  Fields,
  messageTypes,
  textOf,
  varintKey,
  writeInt64,
  writeMapEntry,
  writeString,
} from './protobuf.ts';
export { parseMilli, parseQuantity } from './quantities/kubernetes.ts';
export {
  type Bytes,
  bytes,
  type CpuMax,
  type CpuShares,
  type CpuWeight,
  cpuShares,
  cpuWeight,
  type Limit,
  type Microseconds,
  microseconds,
  reportedShares,
} from './quantities/numbers.ts';
export { PAGE_SIZE } from './quantities/page-size.ts';
export { fullestOf, podPressure, pressureOf, shareOf } from './quantities/pressure.ts';
export { exactSize, KiB, MiB, roundedDuration, roundedSize, roundedSizeWithUnit } from './quantities/sizes.ts';
export { Lazy, SharedCall } from './shared-call.ts';
export { readShipped } from './shipped-files.ts';
export { PacedActions, Slots } from './slots.ts';
export { BypassWatch, bypassTarget, lastBypassTarget, takeBypassFiles, writeBypassTarget } from './systemd/bypass.ts';
export { type PassedSocket, takePassedSockets } from './systemd/descriptors.ts';
export { type Supervisor, superviseBy, takeSupervisorVariables } from './systemd/supervisor.ts';
export { SO_ACCEPTCON, SS_CONNECTED, SS_CONNECTING, unixSockets } from './unix-sockets.ts';
export {
  backOff,
  type CancelSignal,
  jittered,
  LONGEST_TIMER_MS,
  pause,
  TimeLimit,
  untilAborted,
  within,
} from './waiting.ts';
