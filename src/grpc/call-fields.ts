import { status } from '@grpc/grpc-js';
import type { CallTrace } from './call.ts';

/** The line of an intercepted call: method, ids, code, and milliseconds in us and in the backend. */
export function callFields(
  trace: CallTrace,
  method: string,
  code: number,
  shimMs: number,
): Readonly<Record<string, string | number | boolean | undefined>> {
  return {
    ...trace.fields,
    method,
    code: status[code] ?? code,
    shimMs: rounded(Math.max(0, shimMs)),
    backendMs: rounded(trace.backendMs),
  };
}

/** Milliseconds with three digits: microseconds. */
const rounded = (milliseconds: number): number => Math.round(milliseconds * 1000) / 1000;
