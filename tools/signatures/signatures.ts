import { messageOf } from '../../src/core/errors.ts';

export type SignatureResult =
  | { readonly kind: 'verified' }
  /** Packages whose signature is wrong, or that have none although the registry signs. */
  | { readonly kind: 'failed'; readonly packages: readonly string[] }
  | { readonly kind: 'not checked'; readonly why: string };

/** The output of a run of npm. */
export interface Run {
  readonly stdout: string;
  readonly timedOut: boolean;
}

export interface SignatureParts {
  /** `https://registry.npmjs.org/` */
  readonly registry: string;
  /** Runs npm with these arguments. Must not reject. */
  readonly npm: (args: readonly string[]) => Promise<Run>;
  readonly timeoutMs: number;
}

/**
 * Compares the installed packages with the registry's signatures, by `npm audit signatures`. A mirror often serves no
 * keys, and npm then waits long or says nothing, so the keys are asked for first. Never rejects.
 */
export async function checkSignatures({ registry, npm, timeoutMs }: SignatureParts): Promise<SignatureResult> {
  const why = await whyNoKeys(registry, timeoutMs);
  if (why !== undefined) return { kind: 'not checked', why };
  const { stdout, timedOut } = await npm(['audit', 'signatures', '--json', '--registry', registry]);
  if (timedOut) return { kind: 'not checked', why: 'npm audit signatures has not ended in time' };
  return resultOf(stdout);
}

async function whyNoKeys(registry: string, timeoutMs: number): Promise<string | undefined> {
  const url = new URL('-/npm/v1/keys', registry.endsWith('/') ? registry : `${registry}/`);
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(timeoutMs) });
    if (!response.ok) return `${url.href} serves no keys: HTTP ${response.status}`;
    const { keys } = (await response.json()) as { readonly keys?: unknown };
    return Array.isArray(keys) && keys.length > 0 ? undefined : `${url.href} serves no keys`;
  } catch (error) {
    const { cause } = error as { readonly cause?: unknown };
    return `${url.href} does not answer: ${messageOf(cause ?? error)}`;
  }
}

interface Audited {
  readonly name?: string;
  readonly version?: string;
}

function resultOf(stdout: string): SignatureResult {
  try {
    const { invalid, missing, error } = JSON.parse(stdout) as {
      readonly invalid?: readonly Audited[];
      readonly missing?: readonly Audited[];
      readonly error?: { readonly summary?: string };
    };
    if (error !== undefined) return { kind: 'not checked', why: `npm audit signatures: ${error.summary ?? 'failed'}` };
    if (!Array.isArray(invalid) || !Array.isArray(missing))
      return { kind: 'not checked', why: 'npm audit signatures printed no result' };
    const say = (what: string, { name = '', version = '' }: Audited): string => `${name}@${version}: ${what}`;
    const packages = [
      ...(invalid as readonly Audited[]).map((one) => say('wrong signature', one)),
      ...(missing as readonly Audited[]).map((one) => say('no signature', one)),
    ];
    return packages.length === 0 ? { kind: 'verified' } : { kind: 'failed', packages };
  } catch {
    return { kind: 'not checked', why: 'npm audit signatures printed no result' };
  }
}
