import type { ReadinessCheck, ReadinessReport } from '../observe/index.ts';
import type { Answer } from './answer.ts';

/** That it answers at all is the check. */
const alive: ReadinessReport = { ready: true, checks: [{ name: 'ping', ready: true, says: '' }] };

/**
 * A health check as Kubernetes' components answer it (k8s.io/apiserver, server/healthz): `ok`, or with `verbose`, and whenever
 * one fails, a line for each check; 200 or 500. `exclude` leaves checks out. A failed one says why.
 */
export function healthAnswer(name: string, report: ReadinessReport, query: URLSearchParams): Answer {
  const checks = [...alive.checks, ...report.checks];
  const excluded = new Set(query.getAll('exclude'));
  const unknown = [...excluded].filter((other) => checks.every((check) => check.name !== other));
  // What does not count to `ready` (Kubernetes' API, say) does not count here: it is told all the same.
  const counts = (check: ReadinessCheck): boolean => !excluded.has(check.name) && check.isOptional !== true;
  const failed = checks.some((check) => !check.ready && counts(check));
  const lines = [
    ...checks.map((check) => lineOf(check, excluded.has(check.name))),
    ...(unknown.length > 0
      ? [
          `warn: some health checks cannot be excluded: no matches for ${unknown.map((other) => JSON.stringify(other)).join(', ')}`,
        ]
      : []),
    `${name} check ${failed ? 'failed' : 'passed'}`,
  ];
  const isVerbose = failed || query.has('verbose');
  return {
    status: failed ? 500 : 200,
    type: 'text/plain; charset=utf-8',
    body: isVerbose ? `${lines.join('\n')}\n` : 'ok',
  };
}

function lineOf({ name, ready, says, isOptional }: ReadinessCheck, isExcluded: boolean): string {
  if (isExcluded) return `[+]${name} excluded: ok`;
  if (ready) return `[+]${name} ok`;
  return isOptional === true ? `[-]${name} failed, and does not count: ${says}` : `[-]${name} failed: ${says}`;
}

export const livenessAnswer = (name: string, query: URLSearchParams): Answer =>
  healthAnswer(name, { ready: true, checks: [] }, query);
