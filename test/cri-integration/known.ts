const otherAddress =
  "the test computes the socket of containerd's shim from the address of the CRI socket, and containerd from its own";

/**
 * Tests that pass directly and may fail through the shim, with the reason. docs/compatibility.md lists them too. All
 * other differences fail the suite `cri-integration`.
 */
export const accepted: ReadonlyMap<string, string> = new Map(
  [
    'TestContainerIOLeakAfterStartFailed',
    'TestContainerTTYLeakAfterExit',
    'TestContainerTTYLeakAfterExit/ttyOnly',
    'TestContainerTTYLeakAfterExit/interactive',
    'TestIssue7496',
  ].map((name) => [name, otherAddress]),
);

/** If fewer tests than this pass directly, a full run says too little about the shim. 89 pass with containerd 2.3.7. */
export const leastPassedDirect = 75;
