import { execa } from 'execa';
import { checkSignatures } from './signatures.ts';

/**
 * The suite `signatures`: verifies the registry's signatures of the installed packages, and their provenance where they
 * have one. Ends with 0 if they are right, with 1 if one is wrong, and with 2 if the registry does not allow to check
 * them.
 */
const KEYS_MS = 10_000;
const AUDIT_MS = 180_000;

const { stdout: registry } = await execa('npm', ['config', 'get', 'registry']);
const result = await checkSignatures({
  registry: registry.trim(),
  timeoutMs: KEYS_MS,
  async npm(args) {
    const { stdout, timedOut } = await execa('npm', args, { reject: false, timeout: AUDIT_MS });
    return { stdout, timedOut };
  },
});

switch (result.kind) {
  case 'verified':
    process.stdout.write('signatures: the registry has signed all installed packages\n');
    break;
  case 'failed':
    for (const line of result.packages) process.stdout.write(`signatures: ${line}\n`);
    process.exitCode = 1;
    break;
  case 'not checked':
    process.stdout.write(`signatures: NOT CHECKED: ${result.why}\n`);
    process.exitCode = 2;
}
