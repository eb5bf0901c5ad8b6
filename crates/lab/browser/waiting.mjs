// Waiting by asking again and again.
export const pause = ms => new Promise(done => setTimeout(done, ms));

/** Asks until the answer is true, for so many milliseconds at most. Whatever goes wrong is a no. */
export async function until(what, most, ask) {
  const end = performance.now() + most;
  for (;;) {
    let why;
    try {
      if (await ask()) return;
    } catch (error) {
      why = error.message;
    }
    if (performance.now() > end) throw new Error(`${what}: not there after ${most / 1e3} s${why ? ': ' + why : ''}`);
    await pause(100);
  }
}
