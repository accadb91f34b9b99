import protobuf from 'protobufjs/minimal.js';
import { Code, Reason, ShimError } from '../core/errors/index.ts';
import type { ReadinessReport } from '../observe/index.ts';
import type { RawUnaryHandler } from '../grpc/index.ts';
import { PACKAGE } from './wire/index.ts';

/**
 * grpc.health.v1.Health/Check, as grpc_health_probe and kubelet's gRPC probes ask it: the empty service is the process itself,
 * the resize service is whether resizes can be carried out. Watch is not served, which the protocol allows for.
 */
export const healthPath = '/grpc.health.v1.Health/Check';

/** HealthCheckResponse.ServingStatus. */
const SERVING = 1;
const NOT_SERVING = 2;
const SERVICE = `${PACKAGE}.ResizeService`;

/** One field each: `service` (1) asked, `status` (1) answered. Not worth a parser of .proto files. */
export function healthCheck(readiness: () => Promise<ReadinessReport>): RawUnaryHandler {
  return async (call, trace) => {
    const service = readService(call.request);
    if (service === '') return answer(SERVING);
    if (service !== SERVICE) throw unknownService(service);
    const { ready, checks } = await readiness();
    const failing = checks.filter((check) => !check.ready).map(({ name }) => name);
    if (failing.length > 0) trace.fields['notReady'] = failing.join(', ');
    return answer(ready ? SERVING : NOT_SERVING);
  };
}

function readService(request: Buffer): string {
  try {
    const reader = protobuf.Reader.create(request);
    let service = '';
    while (reader.pos < reader.len) {
      const tag = reader.uint32();
      if (tag === ((1 << 3) | 2)) service = reader.string();
      else reader.skipType(tag & 7);
    }
    return service;
  } catch (error) {
    const message = `HealthCheckRequest: ${request.length} bytes that are no such message`;
    const context = { field: 'HealthCheckRequest' };
    throw new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, context, { cause: error });
  }
}

const answer = (status: number): Buffer =>
  Buffer.from(
    protobuf.Writer.create()
      .uint32(1 << 3)
      .int32(status)
      .finish(),
  );

/** As the health checking protocol wants it: NOT_FOUND. */
function unknownService(service: string): ShimError {
  const asked = service.slice(0, 80);
  const message = `no service ${JSON.stringify(asked)}: ask for "" or ${SERVICE}`;
  return new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_SERVICE, message, { field: 'service', asked });
}
