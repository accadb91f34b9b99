import { grpcCodeName } from '../core/grpc/index.ts';
import type { CallTrace } from './call.ts';

/**
 * Returns the log fields of an intercepted call: ids, method, code, and milliseconds in the shim and in the backend.
 */
export function callFields(
  trace: CallTrace,
  method: string,
  code: number,
  shimMs: number,
): Readonly<Record<string, string | number | boolean | undefined>> {
  return {
    ...trace.fields,
    method,
    code: grpcCodeName(code),
    shimMs: rounded(Math.max(0, shimMs)),
    backendMs: rounded(trace.backendMs),
  };
}

/** Rounds milliseconds to three decimals, that is, to microseconds. */
const rounded = (milliseconds: number): number => Math.round(milliseconds * 1000) / 1000;
