import { createServer } from 'node:net';
import { readRecording } from './recording.ts';
import { RecordedAnswers, serveRecorded } from './runtime.ts';

/**
 * A runtime that answers with the bytes of a recording. Arguments: its socket, and the file of the recording. A
 * connection to `<socket>.unknown` receives the calls that the recording has no answer to, one per line.
 */
const [, , socket = '', file = ''] = process.argv;
const answers = new RecordedAnswers(readRecording(file));
createServer((client) => client.end(answers.unknown.join('\n'))).listen(`${socket}.unknown`);
serveRecorded(answers).listen(socket);
// The pipe of the process that started this one. The runtime ends with it.
process.stdin.resume().on('end', () => process.exit(0));
