import { execa } from 'execa';

/** Builds the single executable as `npm run package`, unless up to date. Returns it and its bill of materials. */
export async function madeExecutable(): Promise<{ executable: string; sbom: string }> {
  const { stdout } = await execa(process.execPath, ['dist/tools/package.js', '--only', 'executable']);
  const [executable, sbom] = stdout.split('\n');
  if (executable === undefined || sbom === undefined) throw new Error(`no executable was made: ${stdout}`);
  return { executable, sbom };
}
