import { createHash, timingSafeEqual } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { errnoOf, type Log } from '../core/index.ts';
import { cached } from './cached.ts';
import { MONITORING_LIMITS } from './limits.ts';

/** Whether a request may be answered. `unusable`: nobody can be, because the file has no token. */
export type Admission = 'admitted' | 'denied' | 'unusable';

/** The characters of RFC 6750 section 2.1, with a minimum length against guessing. */
const TOKEN = /^[\w.~+/-]{16,4096}=*$/;
const LONGEST_FILE = 4200;
const READ_BY_OTHERS = 0o006;

/** Compares requests with the bearer token in a file. Rereads it while requests come, at most once a second. */
export class TokenFile {
  readonly #digest: () => Promise<Buffer | undefined>;
  /** The result of the last read of the file. */
  #problem: string | undefined;

  constructor(
    private readonly path: string,
    private readonly log: Log,
    readMs: number = MONITORING_LIMITS.tokenMs,
  ) {
    this.#digest = cached(() => this.#read(), readMs);
  }

  /** @param authorization the header of the request. Never rejects. */
  async admits(authorization: string | undefined): Promise<Admission> {
    const expected = await this.#digest();
    if (expected === undefined) return 'unusable';
    const [, given] = /^Bearer +(\S+) *$/i.exec(authorization ?? '') ?? [];
    // Digests have equal length, so the comparison time does not reveal the token.
    return given !== undefined && timingSafeEqual(digestOf(given), expected) ? 'admitted' : 'denied';
  }

  async #read(): Promise<Buffer | undefined> {
    const token = await readToken(this.path);
    const problem = 'problem' in token ? token.problem : undefined;
    if (problem !== undefined && problem !== this.#problem)
      this.log.warn({ file: this.path, error: problem }, 'token file of metrics cannot be used; requests are rejected');
    if (problem === undefined && this.#problem !== undefined)
      this.log.info({ file: this.path }, 'token file of metrics usable again');
    this.#problem = problem;
    return 'problem' in token ? undefined : token.digest;
  }
}

const digestOf = (token: string): Buffer => createHash('sha256').update(token).digest();

/** Reads the file. The problem never quotes it. */
async function readToken(path: string): Promise<{ readonly digest: Buffer } | { readonly problem: string }> {
  try {
    // Not blocking: a pipe would wait for its writer.
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = await file.stat();
      if (!stat.isFile()) return { problem: 'it is not a file' };
      if ((stat.mode & READ_BY_OTHERS) !== 0)
        return { problem: 'other users may read or write it: its mode must be 0600 or 0640' };
      const { bytesRead, buffer } = await file.read(Buffer.alloc(LONGEST_FILE), 0, LONGEST_FILE, 0);
      const text = buffer.toString('latin1', 0, bytesRead).trim();
      return TOKEN.test(text)
        ? { digest: digestOf(text) }
        : {
            problem:
              'it has no token: 16 to 4096 letters, digits and "-", ".", "_", "~", "+", "/", with "=" at the end',
          };
    } finally {
      await file.close();
    }
  } catch (error) {
    return { problem: `it cannot be read (${errnoOf(error) ?? 'unknown error'})` };
  }
}
