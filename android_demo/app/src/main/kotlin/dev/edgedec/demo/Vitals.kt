package dev.edgedec.demo

import android.annotation.TargetApi
import android.content.Context
import android.os.Build
import android.os.Debug
import android.os.PowerManager
import java.util.concurrent.Executors
import java.util.concurrent.TimeUnit

/** How much memory the app takes, and how hot the phone is. */
class Vitals(context: Context) : AutoCloseable {
    // Counting pages takes tens of milliseconds, so not on the screen's thread.
    private val worker = Executors.newSingleThreadScheduledExecutor { Thread(it, "vitals") }
    private val thermometer = if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.Q) Thermometer(context) else null

    /** Proportional set size: the app's pages, and its share of those that others use as well. */
    @Volatile var memoryMb: Int? = null
        private set

    /** A status of `PowerManager`; null before Android 10. */
    val thermal: Int? get() = thermometer?.status

    init {
        worker.scheduleWithFixedDelay(::measure, 0, PERIOD_S, TimeUnit.SECONDS)
    }

    private fun measure() {
        // 0 where the kernel does not say.
        memoryMb = (Debug.getPss() / KB_PER_MB).toInt().takeIf { it > 0 }
    }

    override fun close() {
        worker.shutdownNow()
        thermometer?.close()
    }

    private companion object {
        const val KB_PER_MB = 1000
        const val PERIOD_S = 2L
    }
}

@TargetApi(Build.VERSION_CODES.Q)
private class Thermometer(context: Context) : PowerManager.OnThermalStatusChangedListener, AutoCloseable {
    private val power = context.getSystemService(PowerManager::class.java)

    @Volatile var status: Int = power.currentThermalStatus
        private set

    init {
        power.addThermalStatusListener(this)
    }

    override fun onThermalStatusChanged(status: Int) {
        this.status = status
    }

    override fun close() = power.removeThermalStatusListener(this)
}
