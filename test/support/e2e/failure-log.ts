import { afterAll, afterEach } from 'vitest';
import { ShimProcess } from '../cri/shim.ts';

/** Lines of each log. A test fails within the last ones. */
const LINES = 40;
let isPrinted = false;

function printLogs(): void {
  isPrinted = true;
  for (const shim of ShimProcess.started) {
    const lines = shim.log.slice(-LINES).map((line) => JSON.stringify(line));
    console.error(`log of the shim on ${shim.address}, process ${shim.process.pid}, its end:\n${lines.join('\n')}`);
  }
}

// After a failed test, or a failed hook, the output has the end of the log of each shim of the file.
afterEach(({ task }) => {
  if (task.result?.state === 'fail') printLogs();
});
// vitest allows only a pattern as the first argument.
// oxlint-disable-next-line no-empty-pattern
afterAll(({}, suite) => {
  const hasErrors = (suite.result?.errors ?? []).length > 0;
  if (hasErrors && !isPrinted) printLogs();
});
