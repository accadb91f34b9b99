import { fstatSync } from 'node:fs';

/** Priorities of syslog(3), which journald stores. */
const PRIORITIES: Readonly<Record<string, number>> = { fatal: 2, error: 3, warn: 4, info: 6, debug: 7, trace: 7 };

/**
 * Returns a line of the log with its level as the prefix of sd-daemon(3), such as `<3>`. journald takes it off again
 * and stores it as the priority of the line, so the line in the journal is the JSON alone. A line without a level is an
 * information.
 */
export function withPriority(line: string): string {
  const [, level = 'info'] = /^\{"level":"(\w+)"/.exec(line) ?? [];
  return `<${PRIORITIES[level] ?? 6}>${line}`;
}

/** Returns non-log lines as errors: with their priority if the file descriptor leads to the journal. */
export function errorLines(text: string, descriptor: number): string {
  const prefix = leadsToJournal(descriptor) ? `<${PRIORITIES['error'] ?? 3}>` : '';
  return text.replaceAll(/^(?=.)/gm, prefix);
}

/**
 * Whether a file descriptor is connected to the journal: systemd sets JOURNAL_STREAM to its device and inode
 * (systemd.exec(5)). Lines to a container log, a file or a terminal get no prefix, because nothing removes it there.
 */
export function leadsToJournal(descriptor: number, environment: NodeJS.ProcessEnv = process.env): boolean {
  const stream = environment['JOURNAL_STREAM'];
  if (stream === undefined) return false;
  try {
    const { dev, ino } = fstatSync(descriptor, { bigint: true });
    return stream === `${dev}:${ino}`;
  } catch {
    // The descriptor is closed: there is no journal.
    return false;
  }
}
