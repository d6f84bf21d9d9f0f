package dev.edgedec.demo

/**
 * Decides by the phone's thermal status whether to decode with a thread fewer.
 *
 * It takes a cooler phone to give the thread back than to take it away, so that a status which
 * swings around the limit does not reopen the bundle again and again.
 */
class Heat {
    var hot = false
        private set

    /** Takes a status of `PowerManager`, or null before Android 10; returns whether [hot] changed. */
    fun update(status: Int?): Boolean {
        val before = hot
        if (status != null && status >= SEVERE) hot = true
        if (status == null || status <= LIGHT) hot = false
        return hot != before
    }

    /** Returns the threads to use: those that were [chosen], or that the decoder [took] by itself. */
    fun threads(chosen: Int?, took: Int?): Int? = when {
        !hot -> chosen
        else -> (chosen ?: took)?.let { maxOf(1, it - 1) }
    }

    private companion object {
        // PowerManager.THERMAL_STATUS_*, which Android 8 and 9 do not have.
        const val LIGHT = 1
        const val SEVERE = 3
    }
}
