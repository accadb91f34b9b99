import { messageOf, ShimError } from '../../../src/core/errors.ts';
import { Random } from '../random.ts';
import type { Target } from '../target.ts';
import { Finding } from '../target.ts';

/** A parser of content that others write. */
export interface Parser {
  readonly name: string;
  /** Returns a mutated content. */
  readonly make: (random: Random) => Buffer | string;
  /** Parses it. May throw what `isDocumented` accepts. */
  readonly parse: (content: Buffer | string) => unknown;
  /** Whether the documentation of the parser lists the error. By default, only a {@link ShimError}. */
  readonly isDocumented?: (error: unknown) => boolean;
}

/** Maximum processor time. Parsing takes far less, also on a slow machine, and other processes do not affect it. */
const MOST_MS = 2000;

const isShimError = (error: unknown): boolean => error instanceof ShimError;

/** Returns the target that feeds these parsers, each as often as the others. */
export function parserTarget(name: string, parsers: readonly Parser[], close: () => void = () => undefined): Target {
  let rejected = 0;
  let accepted = 0;
  const inputOf = (seed: number, index: number): { parser: Parser; content: Buffer | string } => {
    const random = new Random(seed, index);
    const parser = parsers[index % parsers.length]!;
    return { parser, content: parser.make(random) };
  };
  return {
    name,
    async play(seed, index) {
      const { parser, content } = inputOf(seed, index);
      const start = process.threadCpuUsage();
      try {
        const parsed = parser.parse(content);
        if (parsed instanceof Promise) await parsed;
        accepted += 1;
      } catch (error) {
        if (!(parser.isDocumented ?? isShimError)(error))
          throw new Finding(`${parser.name}: undocumented ${nameOf(error)}: ${messageOf(error)}`, { cause: error });
        rejected += 1;
      }
      const { user, system } = process.threadCpuUsage(start);
      const took = (user + system) / 1000;
      if (took > MOST_MS) throw new Finding(`${parser.name}: took ${took.toFixed(0)} ms of processor time`);
    },
    describe(seed, index) {
      const { parser, content } = inputOf(seed, index);
      return [parser.name, typeof content === 'string' ? JSON.stringify(content) : content.toString('hex')];
    },
    summary: () => `${accepted} parsed, ${rejected} rejected`,
    close,
  };
}

const nameOf = (error: unknown): string => (error instanceof Error ? error.name : typeof error);

/** Whether it is a plain Error: not one of the engine's, such as TypeError or RangeError. */
export const isPlainError = (error: unknown): boolean =>
  error instanceof Error && Object.getPrototypeOf(error) === Error.prototype;

/** Returns the parsers. The last uses files and takes much longer: it is fed once in ten rounds of the others. */
export const oftenInMemory = (parsers: readonly Parser[]): readonly Parser[] => [
  ...Array.from({ length: 10 }, () => parsers.slice(0, -1)).flat(),
  ...parsers.slice(-1),
];
