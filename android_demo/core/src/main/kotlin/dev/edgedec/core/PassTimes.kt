package dev.edgedec.core

/**
 * Nanoseconds of a model's pass by its rows: measured for some numbers of rows, straight lines between them.
 *
 * @param rows ascending, beginning with 1
 * @param times of these, corrected while decoding
 */
class PassTimes(private val rows: IntArray, private val times: DoubleArray) {
    init {
        require(rows.isNotEmpty() && rows.size == times.size) { "expected a time for each number of rows" }
    }

    /** Returns the time of a pass over [count] rows; beyond those measured, the last line goes on. */
    fun of(count: Int): Double {
        if (rows.size == 1) return times[0] * count / rows[0]
        val upper = upper(count)
        val share = share(count, upper)
        return times[upper - 1] + share * (times[upper] - times[upper - 1])
    }

    /** Changes the times next to [count] rows by up to [factor], the nearer ones more. */
    internal fun correct(count: Int, factor: Double) {
        if (rows.size == 1) {
            times[0] *= factor
            return
        }
        val upper = upper(count)
        val share = share(count, upper).coerceAtMost(1.0)
        times[upper] *= 1 + share * (factor - 1)
        times[upper - 1] *= 1 + (1 - share) * (factor - 1)
    }

    private fun upper(count: Int): Int = (1 until rows.size - 1).firstOrNull { rows[it] >= count } ?: (rows.size - 1)

    private fun share(count: Int, upper: Int): Double =
        (count - rows[upper - 1]).toDouble() / (rows[upper] - rows[upper - 1])

    companion object {
        private val MEASURED_ROWS = intArrayOf(1, 2, 4, 8)

        // Tokens before the measured ones: a pass after none is another one.
        private const val CONTEXT = 32

        // Samples of each number of rows: as many as fit in a second, within these bounds.
        private const val FEWEST = 3
        private const val MOST = 9
        private const val LONGEST_NS = 1_000_000_000L

        /**
         * Measures passes of 1, 2, 4 and 8 rows: the median of several.
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
                var least = 0.0
                // More rows are never faster: where they seem so it is noise.
                val times = samples.map { maxOf(least, median(it)).also { time -> least = time } }
                return PassTimes(rows.toIntArray(), times.toDoubleArray())
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

        private fun median(samples: List<Long>): Double = samples.sorted()[samples.size / 2].toDouble()
    }
}
