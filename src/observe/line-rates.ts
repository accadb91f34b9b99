import { LOG_LIMITS } from './log-limits.ts';

export type LineLevel = 'debug' | 'info' | 'warn' | 'error';

const RATES: Readonly<Record<LineLevel, { readonly perSecond: number; readonly burst: number }>> = {
  debug: { perSecond: LOG_LIMITS.linesPerSecond, burst: 2 * LOG_LIMITS.linesPerSecond },
  info: { perSecond: LOG_LIMITS.linesPerSecond, burst: 2 * LOG_LIMITS.linesPerSecond },
  warn: { perSecond: LOG_LIMITS.warningsPerSecond, burst: 10 * LOG_LIMITS.warningsPerSecond },
  error: { perSecond: LOG_LIMITS.warningsPerSecond, burst: 10 * LOG_LIMITS.warningsPerSecond },
};

/** The lines of one message. */
interface Message {
  /** Lines that may be written now. */
  allowed: number;
  /** Milliseconds. */
  at: number;
  suppressed: number;
}

/** Limits the rate of log lines for each message. Messages are fixed phrases, so their number is bounded. */
export class LineRates {
  readonly #messages = new Map<string, Message>();
  readonly #now: () => number;

  /** @param now milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Whether a line may be written. If so, returns how many lines of this message were suppressed before it. */
  admit(level: LineLevel, text: string): { readonly suppressed: number } | undefined {
    const { perSecond, burst } = RATES[level];
    const now = this.#now();
    let message = this.#messages.get(text);
    if (message === undefined) this.#messages.set(text, (message = { allowed: burst, at: now, suppressed: 0 }));
    message.allowed = Math.min(burst, message.allowed + ((now - message.at) * perSecond) / 1000);
    message.at = now;
    if (message.allowed < 1) {
      message.suppressed += 1;
      return undefined;
    }
    message.allowed -= 1;
    const { suppressed } = message;
    message.suppressed = 0;
    return { suppressed };
  }
}
