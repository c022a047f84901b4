// Moves the clock of a process by TEST_CLOCK_OFFSET milliseconds. For `node --import`.

const offset = Number(process.env.TEST_CLOCK_OFFSET ?? 0);
const now = Date.now.bind(Date);
Date.now = () => now() + offset;
