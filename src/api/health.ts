import { Code, Reason, ShimError } from '../core/errors/index.ts';
import { contentsOf, createWriter, textOf, varintKey } from '../core/protobuf/index.ts';
import type { ReadinessReport } from '../observe/index.ts';
import type { RawUnaryHandler } from '../grpc/index.ts';
import { PACKAGE } from './wire/index.ts';

/**
 * grpc.health.v1.Health/Check, for grpc_health_probe and kubelet's gRPC probes. The empty service is the process
 * itself; the resize service is healthy if resizes are possible. Watch is not implemented, which the protocol allows.
 */
export const healthPath = '/grpc.health.v1.Health/Check';

/** HealthCheckResponse.ServingStatus. */
const SERVING = 1;
const NOT_SERVING = 2;
const SERVICE = `${PACKAGE}.ResizeService`;

/** The only field of both messages: `service` in HealthCheckRequest, `status` in HealthCheckResponse. */
const FIELD = 1;

/** Serves Health/Check. */
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
    return textOf(contentsOf(request, FIELD).at(-1));
  } catch (error) {
    const message = `HealthCheckRequest: cannot decode ${request.length} bytes`;
    const context = { field: 'HealthCheckRequest' };
    throw new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, context, { cause: error });
  }
}

const answer = (status: number): Buffer => Buffer.from(createWriter().uint32(varintKey(FIELD)).int32(status).finish());

/** Returns NOT_FOUND, as the health checking protocol requires. */
function unknownService(service: string): ShimError {
  const asked = service.slice(0, 80);
  const message = `unknown service ${JSON.stringify(asked)}: expected "" or ${SERVICE}`;
  return new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_SERVICE, message, { field: 'service', asked });
}
