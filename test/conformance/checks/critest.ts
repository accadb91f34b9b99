import { join } from 'node:path';
import { runGinkgo } from './ginkgo.ts';

export interface CritestRun {
  readonly endpoint: string;
  /** Ginkgo's regular expression for full names of specs; undefined selects all. */
  readonly focus: string | undefined;
  /** The folder for the report and the log. */
  readonly outDir: string;
  /** Receives lines of progress. */
  readonly say: (line: string) => void;
}

export const reportName = 'report.json';

/** Both sides run specs in the same order, so that leftovers of one spec meet the same next spec. */
const seed = 1;

/** Runs critest to completion. Failed specs are in the report and are no error here. */
export function runCritest({ endpoint, focus, outDir, say }: CritestRun): Promise<void> {
  return runGinkgo({
    what: 'critest',
    file: 'critest',
    args: [
      ...['--runtime-endpoint', endpoint, '--image-endpoint', endpoint],
      ...['--ginkgo.v', '--ginkgo.no-color', `--ginkgo.seed=${seed}`, '--ginkgo.timeout=40m'],
      `--ginkgo.json-report=${join(outDir, reportName)}`,
      ...(focus === undefined ? [] : [`--ginkgo.focus=${focus}`]),
    ],
    log: join(outDir, 'critest.log'),
    say,
  });
}
