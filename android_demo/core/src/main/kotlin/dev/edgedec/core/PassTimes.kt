package dev.edgedec.core

import kotlin.math.abs
import kotlin.math.sqrt

/**
 * Nanoseconds of a model's pass by its rows: measured for some numbers of rows, straight lines between them.
 *
 * @param rows ascending, beginning with 1; two or more
 * @param times of these, corrected while decoding
 * @param samples how many measurements each of them is from
 * @param noise relative deviation of one measurement, with [samples] what is not known for sure
 */
class PassTimes(
    private val rows: IntArray,
    private val times: DoubleArray,
    private val samples: Int = MOST_SAMPLES,
    private var noise: Double = 0.0,
) {
    init {
        require(rows.size > 1 && rows.size == times.size) { "expected two numbers of rows or more, and a time for each" }
    }

    // What [times] count for when a round corrects them. Passes of one row take less in plain decoding than
    // between others, so the first rounds replace what was measured.
    private val weights = DoubleArray(rows.size) { if (it == 0) 0.0 else MEASURED_WEIGHT }

    /** Returns the time of a pass over [count] rows; beyond those measured, the last line goes on. */
    fun of(count: Int): Double {
        val upper = upper(count)
        return times[upper - 1] + share(count, upper) * (times[upper] - times[upper - 1])
    }

    /** Returns the relative standard error of [of]. */
    fun doubt(count: Int): Double {
        val upper = upper(count)
        val nearest = if (share(count, upper) < 0.5) upper - 1 else upper
        return noise / sqrt(samples + weights[nearest])
    }

    /** Learns that a pass over [count] rows took [ratio] times what [of] says, from the times next to it. */
    internal fun correct(count: Int, ratio: Double) {
        noise += NOISE_RATE * (abs(ratio - 1) * DEVIATION - noise)
        val upper = upper(count)
        val share = share(count, upper).coerceAtMost(1.0)
        correctAt(upper, ratio, share)
        correctAt(upper - 1, ratio, 1 - share)
    }

    private fun correctAt(index: Int, ratio: Double, share: Double) {
        if (share == 0.0) return
        weights[index] = minOf(weights[index] + share, MOST_SAMPLES.toDouble())
        times[index] *= 1 + share / weights[index] * (ratio - 1)
    }

    private fun upper(count: Int): Int = (1 until rows.size - 1).firstOrNull { rows[it] >= count } ?: (rows.size - 1)

    private fun share(count: Int, upper: Int): Double =
        (count - rows[upper - 1]).toDouble() / (rows[upper] - rows[upper - 1])

    companion object {
        // Older measurements count for no more than so many.
        private const val MOST_SAMPLES = 50
        private const val MEASURED_WEIGHT = 2.0

        // How quickly the noise is followed, and a standard deviation by the mean absolute one.
        private const val NOISE_RATE = 0.05
        private const val DEVIATION = 1.25
        private const val MOST_DEVIATION = 0.5
        private val MEASURED_ROWS = intArrayOf(1, 2, 4, 8)

        // Tokens before the measured ones: a pass after none is another one.
        private const val CONTEXT = 32

        // Samples of each number of rows: as many as fit in half a second, within these bounds. Few, since it is most of
        // what opening takes, and the first rounds correct them.
        private const val FEWEST = 3
        private const val MOST = 8
        private const val LONGEST_NS = 500_000_000L

        /**
         * Measures passes of 1, 2, 4 and 8 rows: the quickest of several, since other work only adds.
         *
         * The session keeps its tokens; the passes come after them, or after some others if it is empty.
         */
        fun measure(session: Session, clock: () -> Long = System::nanoTime): PassTimes {
            val length = session.length
            val room = session.capacity - length
            val rows = MEASURED_ROWS.filter { it <= room }
            require(rows.isNotEmpty()) { "expected room for a token in the session" }
            try {
                if (length == 0) session.prefill(IntArray(minOf(CONTEXT, room - rows.last())))
                val samples = rows.map { ArrayList<Long>() }
                val begin = clock()
                for (sweep in 0..MOST) {
                    if (sweep > FEWEST && clock() - begin > LONGEST_NS) break
                    for ((index, count) in rows.withIndex()) {
                        val took = time(session, count, clock)
                        if (sweep > 0) samples[index].add(took) // the first one makes buffers
                    }
                }
                // More rows are never faster: where they seem so it is noise. A second row that does not fit is
                // taken for as slow as the first.
                val times = samples.map { maxOf(1.0, it.min().toDouble()) }.runningReduce { less, time -> maxOf(less, time) }
                val known = if (rows.size > 1) times else listOf(times[0], 2 * times[0])
                return PassTimes(
                    MEASURED_ROWS.copyOf(known.size), known.toDoubleArray(), samples[0].size, noise(samples),
                )
            } finally {
                session.rollback(length)
            }
        }

        private fun time(session: Session, rows: Int, clock: () -> Long): Long {
            val begin = clock()
            session.forward(IntArray(rows))
            val took = clock() - begin
            session.commit(0)
            return took
        }

        /** Returns the relative deviation of one sample; one that was disturbed counts for little. */
        private fun noise(samples: List<List<Long>>): Double {
            val deviations = samples.flatMap { some ->
                val median = median(some)
                some.map { minOf(abs(it / median - 1), MOST_DEVIATION) }
            }
            val count = samples[0].size
            return DEVIATION * deviations.average() * count / maxOf(1, count - 1)
        }

        private fun median(samples: List<Long>): Double = samples.sorted()[samples.size / 2].toDouble()
    }
}
