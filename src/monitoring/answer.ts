import type { ReadinessCheck, ReadinessReport } from '../core/index.ts';

/** An HTTP response. */
export interface Answer {
  readonly status: number;
  /** The content type. */
  readonly type: string;
  readonly body: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Returns an answer in plain text, with a line end. */
export const plain = (status: number, body: string, headers: Answer['headers'] = {}): Answer => ({
  status,
  type: 'text/plain; charset=utf-8',
  body: `${body}\n`,
  headers,
});

/** Passes if the process answers. */
const alive: ReadinessReport = { ready: true, checks: [{ name: 'ping', ready: true, says: '' }] };

/**
 * Answers a health check like Kubernetes components do (k8s.io/apiserver, server/healthz): 200 or 500 with `ok`, or one
 * line per check if a check fails or with `verbose`. `exclude` skips checks. Unlike in Kubernetes, a failed check
 * includes its reason.
 */
export function healthAnswer(name: string, report: ReadinessReport, query: URLSearchParams): Answer {
  const checks = [...alive.checks, ...report.checks];
  const excluded = new Set(query.getAll('exclude'));
  const unknown = [...excluded].filter((other) => checks.every((check) => check.name !== other));
  // Optional checks, such as the Kubernetes API, are listed but do not fail the result.
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
  return isOptional === true ? `[-]${name} failed (optional): ${says}` : `[-]${name} failed: ${says}`;
}

/** Returns the answer of a liveness check: it is healthy once it answers. */
export const livenessAnswer = (name: string, query: URLSearchParams): Answer =>
  healthAnswer(name, { ready: true, checks: [] }, query);
