import { execa } from 'execa';

/** The single executable as `npm run package` makes it; one that is there and made of the same stays. Gives it, and what it is made of. */
export async function madeExecutable(): Promise<{ executable: string; sbom: string }> {
  const { stdout } = await execa(process.execPath, ['dist/tools/package.js', '--only', 'executable']);
  const [executable, sbom] = stdout.split('\n');
  if (executable === undefined || sbom === undefined) throw new Error(`no executable was made: ${stdout}`);
  return { executable, sbom };
}
